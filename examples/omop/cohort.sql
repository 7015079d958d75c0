-- Adults with a systolic blood pressure in 2023: one row per visit.
WITH pressure AS (
    SELECT person_id, avg(value_as_number) AS systolic
    FROM measurement
    WHERE measurement_concept_id = 3004249      -- LOINC 8480-6
        AND unit_concept_id = 8876              -- mm[Hg]
        AND measurement_date BETWEEN DATE '2023-01-01' AND DATE '2023-12-31'
    GROUP BY person_id
), creatinine AS (
    SELECT person_id, median(value_as_number) AS creatinine
    FROM measurement
    WHERE measurement_concept_id = 3016723 AND unit_concept_id = 8840
    GROUP BY person_id
)
SELECT
    2023 - year_of_birth AS age,
    CASE gender_concept_id WHEN 8507 THEN 'male' WHEN 8532 THEN 'female' END AS sex,
    visit_type.concept_name AS visit,
    systolic,
    creatinine,
    EXISTS (
        SELECT 1 FROM condition_occurrence
        WHERE condition_occurrence.person_id = person.person_id AND condition_concept_id = 316866
    ) AS hypertension
FROM person
JOIN pressure USING (person_id)
LEFT JOIN creatinine USING (person_id)
JOIN visit_occurrence USING (person_id)
JOIN concept AS visit_type ON visit_type.concept_id = visit_occurrence.visit_concept_id
WHERE 2023 - year_of_birth >= 18
